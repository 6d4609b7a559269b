"""What scripts/compare_peers.py is made of: ours, llama.cpp's server, llama-cpp-python's prompt lookup, and their rounds."""
