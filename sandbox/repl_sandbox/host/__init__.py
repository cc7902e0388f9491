"""The trusted side: it starts the fork server, owns kernels and checks what they say."""
