"""The command line: parser, composition root, rendering, exit codes."""
