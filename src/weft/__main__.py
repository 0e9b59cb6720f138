"""`python -m weft …` is the command `weft …`."""

from weft.distributed.run import command

if __name__ == "__main__":
    command()
