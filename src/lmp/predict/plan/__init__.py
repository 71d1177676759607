"""How to spread a model over GPUs: layouts that divide and fit, what each serves, and the front of them."""
