"""Everything that touches llama.cpp. `binding` is the only importer of llama_cpp; `model`, `context` and
`sampler` wrap one kind of native object each, turn every return code into a typed error, and own its memory."""
