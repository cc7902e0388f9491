"""What runs in the fork server and in its kernels, beside the code of whoever writes lines."""
