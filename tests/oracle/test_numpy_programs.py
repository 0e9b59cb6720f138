"""Programs that share memory with NumPy, run by both frameworks: what they print has to be the same."""

import copy
import io
import textwrap
import warnings

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.oracle

PROGRAMS = {
    "NumPy's integers where one or several are taken": """
        from importlib import import_module

        F = import_module(torch.__name__ + ".nn.functional")
        one, two = np.int64(1), np.int32(2)
        x = torch.arange(16.0).view(4, 4)
        for y in (
            torch.fft.fftn(x, dim=one).real,
            torch.fft.fftshift(x, dim=one),
            torch.histogramdd(x[:, :2], bins=two)[0],
            torch.gradient(x, dim=one)[0],
            torch.linalg.norm(x, dim=one),
            torch.hsplit(x, two)[1],
            torch.vsplit(x, two)[1],
            F.interpolate(x[None], size=two),
            F.interpolate(x[None], scale_factor=np.float32(2)),
        ):
            show(y)
    """,
    "NumPy's numbers": """
        for n in (np.float64(3), np.float32(3), np.float16(3), np.int64(3), np.int32(3), np.uint8(3)):
            for x in (torch.full((2,), n), torch.arange(n), torch.linspace(0, n, 2), torch.logspace(0, n, 2)):
                show(x)
                print(str(x.dtype).split(".")[1])
            for x in (torch.tensor([2, 3]), torch.tensor(2), torch.tensor([2.0]), torch.tensor(2.0)):
                for y in (x**n, n**x, x.pow(n), torch.pow(n, x), x * n, n - x, x // n, n % x):
                    show(y)
                    print(type(y).__name__, str(y.dtype).split(".")[1])
        x = torch.ones(2) * 3
        x **= np.int64(2)
        show(x)
        try:
            torch.tensor([2]) ** np.int64(-1)
        except RuntimeError as error:
            print(error)
        x = torch.arange(6.0).view(2, 3)
        show(x[[np.int64(1)]], x[list(np.array([1, 0]))], x[[0, np.int64(1)]], x[(np.int64(1),)])
        x[[np.int64(0), np.int64(1)]] = torch.zeros(3)
        show(x)
    """,
    "state dicts": """
        m = torch.nn.Linear(2, 2)
        arrs = {k: np.full(tuple(v.shape), 2, np.float32) for k, v in m.state_dict().items()}
        m.load_state_dict({k: torch.from_numpy(v) for k, v in arrs.items()})
        arrs['weight'][:] = 9
        show(m.weight.detach())
        m.load_state_dict({k: torch.from_numpy(v) for k, v in arrs.items()}, assign=True)
        arrs['weight'][:] = 3
        show(m.weight.detach(), m.weight.requires_grad)
        o = torch.optim.Adam(m.parameters(), lr=0.1)
        m(torch.ones(1, 2)).sum().backward()
        o.step()
        show(arrs['weight'], m.weight.detach())
    """,
    "save/load of external": """
        a = np.arange(6.0)
        t = torch.from_numpy(a)
        b = io.BytesIO()
        torch.save({'t': t, 'v': t[2:]}, b)
        b.seek(0)
        l = torch.load(b)
        a[:] = 0
        show(l['t'], l['v'])
        l['t'][2] = 7
        show(l['v'])
    """,
    "out=": """
        out = torch.from_numpy(np.zeros(3))
        torch.add(torch.ones(3, dtype=torch.float64), 1, out=out)
        show(out)
        r = np.zeros((2, 2))
        torch.stack([torch.ones(2, dtype=torch.float64)] * 2, out=torch.from_numpy(r))
        show(r)
    """,
    "index_add_, scatter_, sort in place etc": """
        a = np.zeros(5)
        t = torch.from_numpy(a)
        t.index_add_(0, torch.tensor([1, 3]), torch.ones(2, dtype=torch.float64))
        t.scatter_(0, torch.tensor([0]), 5.0)
        t.clamp_(max=2)
        t.sort()[0]
        show(a)
        t.random_(3, 4)
        show(a)
        t.uniform_(2, 2)
        show(a)
        t.zero_()
        t.masked_scatter_(torch.tensor([True, False, True, False, False]), torch.ones(2, dtype=torch.float64))
        show(a)
    """,
    "foreach, lerp, swap": """
        p = torch.from_numpy((a := np.ones(3)))
        q = torch.from_numpy((b := np.zeros(3)))
        torch._foreach_add_([p, q], 1.0)
        show(a, b)
    """,
    "torch.no_grad buffers: BN running stats": """
        bn = torch.nn.BatchNorm1d(2)
        n = bn.running_mean.numpy()
        bn(torch.ones(4, 2) * 3)
        show(np.round(n, 4))
        k = bn.num_batches_tracked.numpy()
        bn(torch.ones(4, 2))
        print(k)
    """,
    "narrow writes by numpy views": """
        x = torch.zeros(4, 4)
        n = x.numpy()
        n[1] = 1
        n.T[2] = 2
        show(x)
        y = x[1:3]
        y[:, 0] = 5
        show(n)
    """,
    "detach_/requires_grad on external": """
        a = np.ones(2, np.float32)
        t = torch.from_numpy(a)
        t.requires_grad_()
        t.detach_()
        a[0] = 3
        show(t, t.requires_grad)
    """,
    "expand write error": """
        e = torch.from_numpy(np.zeros((1, 3))).expand(2, 3)
        try:
            e.add_(1)
        except RuntimeError as ex:
            print('RuntimeError')
    """,
    "swap data": """
        x = torch.zeros(3)
        n = x.numpy()
        x.data = torch.ones(3)
        n[0] = 5
        show(x, n)
        x.set_(torch.from_numpy(n))
        n[1] = 6
        show(x)
    """,
    "iterators and list(map)": """
        x = torch.arange(3)
        n = x.numpy()
        it = iter(x)
        n[1] = 9
        show(*[v for v in it])
    """,
    "as_strided, unfold": """
        x = torch.from_numpy((a := np.arange(6.0)))
        s = x.as_strided((2, 2), (1, 2))
        a[0] = 100
        show(s)
        s[0, 0] = 7
        show(a)
        u = x.unfold(0, 2, 2)
        a[1] = -1
        show(u)
    """,
    "complex": """
        z = torch.from_numpy((a := np.zeros(2, np.complex64)))
        z.real[0] = 1
        z.imag.fill_(2)
        show(a)
    """,
    "bool index write": """
        x = torch.from_numpy((a := np.arange(4)))
        x[x > 1] = 0
        show(a)
        x[[0, 1]] = 8
        show(a)
        x[None, ...]
        x.t
        show(x.clone().numpy())
        print(torch.tensor(np.array(3.0)).numpy().shape, torch.from_numpy(np.array(3.0)).item())
        a = np.array(3.0)
        t = torch.from_numpy(a)
        a[...] = 4
        show(t)
        t.add_(1)
        show(a)
        x = torch.zeros(2, 3)
        n = x.numpy()
        x.t_()
        show(x.shape, n.shape)
        x[0, 1] = 4
        show(n)
        x = torch.zeros(2)
        n = x.numpy()
        y = copy.copy(x)
        n[0] = 1
        show(y)
        z = copy.deepcopy({'a': x, 'b': x[0:1]})
        z['a'][0] = 5
        show(z['b'], x)
        with torch.inference_mode():
            t = torch.from_numpy((a := np.ones(2)))
            u = t * 2
            a[0] = 5
            show(u, t)
            t.add_(1)
            show(a)
        f = torch.jit.trace if 0 else None
        x = torch.ones(3, requires_grad=True)
        (x * 2).sum().backward()
        g = x.grad.numpy()
        g[:] = 7
        show(x.grad)
        x.grad.zero_()
        show(g)
        torch.nn.utils.clip_grad_norm_([x], 1.0)
        opt = torch.optim.SGD([x], lr=1.0)
        x.grad.add_(1)
        opt.step()
        show(x.detach(), g)
        opt.zero_grad(set_to_none=False)
        show(g)
    """,
}


def printed(framework, program):
    lines = []

    def show(*values):
        lines.append([x.tolist() if hasattr(x, "tolist") else x for x in values])

    scope = {
        "torch": framework,
        "np": np,
        "copy": copy,
        "io": io,
        "show": show,
        "print": lambda *values: lines.append([str(x) if isinstance(x, Exception) else x for x in values]),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(textwrap.dedent(program), scope)
    return lines


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_print_the_same(name):
    assert str(printed(weft, PROGRAMS[name])) == str(printed(torch, PROGRAMS[name]))
