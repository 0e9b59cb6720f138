// The Python objects of recording, as C++ sees them: instances of classes with `__slots__`, which Python defines.
//
// `bind` tells the extension of the classes and constants, once, when the package is imported. A slot is then read at
// its offset in the object, which takes a nanosecond, where an attribute takes thirty.
#pragma once

#include "python.h"

// Python's own header needs what the former includes.
#include <structmember.h>

#include <cstddef>
#include <utility>

namespace weft {

// A slot of a class.
class Slot {
 public:
  explicit Slot(const char* name) : name(name) {}

  // Find the slot in a class; false, with a Python error, if there is none of this name.
  bool find(PyTypeObject* type);

  PyObject* get(PyObject* object) const { return *place(object); }
  bool is(PyObject* object, PyObject* constant) const { return get(object) == constant; }
  // Set the slot of a new object, which is empty.
  void init(PyObject* object, PyObject* value) const { *place(object) = Py_NewRef(value); }
  void init_owned(PyObject* object, PyObject* value) const { *place(object) = value; }
  void set(PyObject* object, PyObject* value) const {
    PyObject* old = std::exchange(*place(object), Py_NewRef(value));
    Py_XDECREF(old);  // last, since it may run anything
  }

  const char* const name;

 private:
  PyObject** place(PyObject* object) const {
    return reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset_);
  }

  Py_ssize_t offset_ = 0;
};

struct ValueClass {
  PyTypeObject* type = nullptr;
  Slot origin{"origin"}, inputs{"inputs"}, aval{"aval"}, content{"content"}, role{"role"}, extras{"extras"}, num{"num"},
      time{"time"}, doubt{"doubt"}, owner{"owner"};
};
struct OutputClass {
  PyTypeObject* type = nullptr;
  Slot signature{"signature"}, index{"index"}, aval{"aval"}, taped{"taped"}, alone{"alone"};
};
struct SignatureClass {
  PyTypeObject* type = nullptr;
  Slot outputs{"outputs"}, requirement{"requirement"}, main{"main"}, execution{"execution"};
};
struct AvalClass {
  PyTypeObject* type = nullptr;
  Slot inference{"inference"}, owner{"owner"}, weak{"weak"}, device{"device"}, external{"external"}, names{"names"},
      dtype{"dtype"}, size{"size"};
};
struct CallClass {
  PyTypeObject* type = nullptr;
  Slot signatures{"signatures"}, derives{"derives"}, by_layout{"by_layout"}, write{"write"}, spreads{"spreads"};
};
struct AmbientClass {
  PyTypeObject* type = nullptr;
  Slot pending{"pending"}, grad{"grad"}, simple{"simple"}, capture{"capture"}, context{"context"};
};
struct PendingClass {
  PyTypeObject* type = nullptr;
  Slot limit{"limit"}, room{"room"}, checks{"checks"}, unread{"unread"}, watches{"_watches"}, branch{"branch"};
};
struct DoubtClass {
  PyTypeObject* type = nullptr;
  Slot check{"check"};
};
struct CheckClass {
  PyTypeObject* type = nullptr;
  Slot passed{"passed"}, code{"code"}, failure{"failure"}, reported{"reported"}, signature{"signature"}, site{"site"},
      doubt{"doubt"};
};
struct ProgramClass {
  PyTypeObject* type = nullptr;
  Slot spent{"spent"}, runs{"runs"};
};
struct ExecutedClass {
  PyTypeObject* type = nullptr;
  Slot hooks{"hooks"}, custom{"custom"}, forward{"forward"}, site{"site"}, spent{"spent"}, origin{"origin"},
      inputs{"inputs"}, time{"time"};
};
struct TensorClass {
  PyTypeObject* type = nullptr;
  Slot value{"_value"}, facts{"_facts"};
};
struct FactsClass {
  PyTypeObject* type = nullptr;
  Slot address{"address"}, alias{"alias"}, overwritten{"overwritten"}, resized{"resized"}, role{"role"},
      storage{"storage"}, views{"views"}, writes{"writes"};
};
struct AliasClass {
  PyTypeObject* type = nullptr;
  Slot base{"base"}, steps{"steps"}, tracked{"tracked"}, hidden{"hidden"}, place{"place"}, layout{"layout"};
};
struct ExecutionClass {
  PyTypeObject* type = nullptr;
  Slot host{"host"}, run{"run"};
};
struct RequirementClass {
  PyTypeObject* type = nullptr;
  Slot check{"check"}, precondition{"precondition"};
};
struct PreconditionClass {
  PyTypeObject* type = nullptr;
  Slot on_host{"on_host"}, waits{"waits"};
};

// What `bind` has been told. Constants are kept for ever, as the modules that define them are.
struct Objects {
  ValueClass value;
  OutputClass output;
  SignatureClass signature;
  AvalClass aval;
  CallClass call;
  AmbientClass ambient;
  PendingClass pending;
  ExecutionClass execution;
  RequirementClass requirement;
  PreconditionClass precondition;
  DoubtClass doubt;
  CheckClass check;
  ProgramClass program;
  ExecutedClass executed;
  TensorClass tensor;
  FactsClass facts;
  AliasClass alias;
  PyTypeObject* parameter = nullptr;
  PyTypeObject* shared = nullptr;
  PyTypeObject* size = nullptr;
  PyTypeObject* interior = nullptr;
  PyTypeObject* freed = nullptr;
  PyTypeObject* leaf = nullptr;
  PyTypeObject* ndarray = nullptr;
  PyTypeObject* stand_in = nullptr;
  PyObject* not_computed = nullptr;  // `PENDING`
  PyObject* no_facts = nullptr;
  PyObject* interior_role = nullptr;  // `INTERIOR`
  PyObject* freed_role = nullptr;     // `FREED`
  PyObject* outside = nullptr;        // `OUTSIDE`
  PyObject* no_site = nullptr;        // `""`
  PyObject* cpu = nullptr;
  PyObject* empty = nullptr;    // `()`
  PyObject* weak = nullptr;     // the types of numbers, by their Python type
  PyObject* one = nullptr;      // in a call's static part, what marks an input: `ONE`
  PyObject* many = nullptr;     // count -> what marks so many
  PyObject* exact = nullptr;    // `Exact`
  PyObject* calls = nullptr;    // (operator, static arguments, device) -> `Call`
  PyObject* context = nullptr;  // the context variable of the ambient state
  PyObject* call_of = nullptr;  // (operator, static arguments) -> its `Call`
  PyObject* default_device = nullptr;
  PyObject* default_dtype = nullptr;
  PyObject* avals = nullptr;  // (shape, dtype, weak, device) -> `Aval`
  PyObject* draw = nullptr;   // of the default generator
  PyObject* at_limit = nullptr;
  PyObject* least_limit = nullptr;       // of a list of pending values that nobody is shown
  PyObject* longest = nullptr;           // such a list that is not looked through for repetition: `_LONG`
  PyObject* listeners = nullptr;         // `Listeners`, in whose `all` are those who are told of spans
  PyObject* flight = nullptr;            // `Flight`, whose `recorder` notes programs
  PyObject* ledgers = nullptr;           // device -> what counts its memory
  PyObject* report = nullptr;            // raises failures of checks that a flush has computed
  PyObject* tier_of = nullptr;           // device -> how programs are computed there
  PyObject* module_attribute = nullptr;  // (module, name) -> what `__getattr__` finds
  PyObject* module_hooks = nullptr;      // what is true if hooks see registered attributes as they are read
  PyObject* host = nullptr;              // (tensor, decides) -> its elements
  PyObject* item = nullptr;              // (tensor, decides) -> its only element
  PyObject* reads = nullptr;             // value -> positions of the inputs and outputs that its derivative reads
  PyObject* acquire = nullptr;           // the lock of planning
  PyObject* release = nullptr;
  PyObject* program_seconds = nullptr;  // that compiling takes at least: `PROGRAM_SECONDS`
  PyObject* leaf_array = nullptr;       // value -> its NumPy array or None
  PyObject* has_passed = nullptr;       // (check, its codes or None) -> whether it has passed
  PyObject* program_of = nullptr;       // a graph -> its program, and what it costs
  PyObject* user_site = nullptr;
  PyObject* record = nullptr;  // the twins in Python, which take every call
  PyObject* apply = nullptr;
  PyObject* derivative_of = nullptr;
  PyObject* add_values = nullptr;
  PyObject* drop_values = nullptr;
  PyObject* operand = nullptr;
  PyObject* finish = nullptr;
  PyObject* wrap = nullptr;
  PyObject* tuple_of = nullptr;
  PyObject* copied = nullptr;     // (type of a storage, calls of a path) -> whether the last call's result is a copy
  PyObject* step_call = nullptr;  // (row, static numbers) -> `Call`
  PyObject* finish_view = nullptr;
  PyObject* slice_at = nullptr;
  PyObject* detach_call = nullptr;
  PyObject* masked_fill_call = nullptr;
  PyObject* copy_call = nullptr;
  PyObject* index_calls = nullptr;  // dims -> the calls that take the elements at index tensors for these, and put them
  PyObject* copied_array = nullptr;  // array -> a copy where XLA can read it
  PyObject* aval_of = nullptr;
  PyObject* bool_ = nullptr;  // element types
  PyObject* int32 = nullptr;
  PyObject* int64 = nullptr;
  PyObject* write = nullptr;
  PyObject* replace_value = nullptr;
  PyObject* mark_views_stale = nullptr;
  PyObject* no_context = nullptr;  // `NO_CONTEXT`
  PyObject* fills =
      nullptr;  // type -> (call that fills it with a number, the least, the most, whether it takes fractions)
};
extern Objects objects;

PyObject* bind(PyObject* module, PyObject* args, PyObject* kwargs);

bool init_recorder(PyObject* module);
bool init_calls(PyObject* module);
bool init_leaves(PyObject* module);
bool init_modules(PyObject* module);
bool init_views(PyObject* module);
bool init_parts(PyObject* module);
bool init_writes(PyObject* module);
bool init_flush(PyObject* module);
bool init_reading(PyObject* module);
bool init_backward(PyObject* module);

}  // namespace weft
