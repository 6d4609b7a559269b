"""`paceline verify`: is what speculative decoding writes what the target alone would write? Statistics (`statistics`), the
three checks (`identity`, `distribution`, `session`), and the verdict (`result`). `shadow` re-checks single replies."""
