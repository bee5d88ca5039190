"""One module per API: request and response, declared once for all versions."""
