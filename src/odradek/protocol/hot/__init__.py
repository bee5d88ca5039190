"""Hand-tuned codecs for the requests that a broker serves thousands of times a second.

Requests are read into plain tuples, responses are written from them; no message object is made.
Bytes and values are those of the generated codec, which stays the reference and handles rare cases,
such as an error with its leader hint.
"""
