"""What a layout costs on a cluster: seconds of compute and communication, bytes of memory."""
