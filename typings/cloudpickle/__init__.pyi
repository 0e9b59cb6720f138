import pickle

class Pickler(pickle.Pickler):
    def reducer_override(self, obj: object) -> object: ...
