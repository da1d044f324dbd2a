"""What ends a run of the tests where they want it to."""


class StopAt:
    """Interrupts a run when it has been asked so often; −1 is never."""

    def __init__(self, moment=-1):
        self.moment, self.count = moment, 0

    def __call__(self):
        self.count += 1
        return self.count == self.moment
