"""The one way in which a rule says that it does not cover what it is asked for."""


class RefusedError(Exception):
    """A case that a rule does not cover; the text says why.

    Whoever asked takes the next rule, or lists the case with the reason in an error for the user.
    """
