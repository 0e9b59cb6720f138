"""Programs of which each is bound by one thing, by the name of it."""

PROGRAMS = {
    "data": """
import time
import weft as torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        time.sleep(0.05)  # as a file on a slow disk
        return torch.full((4,), float(index))

model = torch.nn.Linear(4, 1)
for batch in torch.utils.data.DataLoader(Slow(), batch_size=4):
    model(batch).sum().backward()
""",
    "Python": """
import weft as torch

x = torch.ones(3)
for step in range(3000):
    y = sum(i * i for i in range(300)) + step
    x = x * 0.5 + 1
print(x.tolist(), y)
""",
    "compilation": """
import weft as torch

@torch.compile
def step(x):
    return (x.sin() @ x.T).exp().sum()

for size in range(3, 12):
    for _ in range(2):
        step(torch.ones(size, 8)).item()
""",
    "computation": """
import weft as torch

x = torch.rand(900, 900)
for _ in range(20):
    y = x
    for _ in range(4):
        y = y @ x / 450
    y.sum().item()
""",
}

WORKERS = """
import time
import weft as torch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.05)
        return torch.full((4,), float(index))

if __name__ == "__main__":
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=2, num_workers=2):
        batch.sum().item()
"""

TWO_RANKS = """
import time
import weft as torch
import weft.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
for _ in range(10):
    if dist.get_rank() == 1:
        time.sleep(0.1)
    dist.all_reduce(x)
    x /= 2
dist.destroy_process_group()
"""

A_RANK_FAILS = """
import sys
import weft as torch
import weft.distributed as dist

dist.init_process_group("gloo")
x = torch.ones(4)
dist.all_reduce(x)
if dist.get_rank() == 1:
    if sys.argv[1] == "ends":
        sys.exit(3)
    raise ValueError("on purpose")
dist.all_reduce(x)
"""
