"""What `make bench` measures, a module for each kind of row; netns.bench runs them."""
