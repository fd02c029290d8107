"""What client and server say to each other, spelled once.

``names`` holds routes, enums, limits and defaults; ``requests`` builds bodies; ``answers`` reads
what comes back. Client and server meet only here.
"""
