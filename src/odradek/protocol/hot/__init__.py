"""Hand-tuned codecs for what a broker does thousands of times a second.

Requests are read into plain tuples, responses are written from them; no message object is made.
Bytes and values are those of the generated codec, which stays the reference: shapes that are rare
(an error with its leader hint, say) are handed to it.
"""
