"""Names of PyTorch's machinery that have no meaning here, so that programs which import or mention them run.

PyTorch's C++ classes, its compilers and its exporter to ONNX have no counterpart: XLA takes their place. A row of the
table (`weft/_import_paths/table.py`) says what each of their names is:

    types     a class that nothing is an instance of
    errors    an exception that nothing raises
    ignored   a function that does nothing
    denied    a function that answers False
    refused   a function that raises `NotImplementedError` when it is called

Each of these modules makes the object of a name when it is first asked for. What has a meaning here, or has something
else in its place, is no such name: it stands where its subject does.
"""
