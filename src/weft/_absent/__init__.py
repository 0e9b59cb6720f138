"""Names of PyTorch's machinery that have no meaning here, so that programs which import or mention them run.

PyTorch's C++ classes, its compilers and its exporter to ONNX have no counterpart: XLA takes their place. A row of the
table (`weft/_import_paths/table.py`) says what each of their names is: a class that nothing is an instance of (`types`),
an exception that nothing raises (`errors`), a function that does nothing (`ignored`), that answers False (`denied`), or
that says so when it is called (`refused`). Each module makes the object of a name when it is first asked for. What has a
meaning here, or could be replaced by something that has one, is no such name: it stands where its subject does.
"""
