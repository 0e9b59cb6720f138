"""A small training under `weft run`, which goes on from its checkpoint: `training.py FOLDER [RANK STEP]` kills a rank.

Every process writes the samples of each of its steps to `FOLDER/samples`, one line a step. The killed rank leaves a
copy of the checkpoint, `left.weft`.
"""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import weft as torch
import weft.distributed as dist
from weft import nn
from weft.nn.parallel import DistributedDataParallel
from weft.utils.data import DataLoader, Dataset, DistributedSampler

EPOCHS, BATCH, COUNT = 3, 12, 40


class Numbers(Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, at):
        return at, torch.linspace(0, at / COUNT, 6)


class Scaler:
    """Anything with a state."""

    def __init__(self):
        self.scale = 1.0

    def state_dict(self):
        return {"scale": self.scale}

    def load_state_dict(self, state):
        self.scale = state["scale"]


def main(folder, victim=(-1, -1)):
    dist.init_process_group()
    rank, size, attempt = dist.get_rank(), dist.get_world_size(), os.environ["TORCHELASTIC_RESTART_COUNT"]
    torch.manual_seed(1)  # equal masks on all ranks
    model = nn.Sequential(nn.Linear(6, 32), nn.GELU(), nn.Dropout(0.25), nn.Linear(32, 6))
    optimizer = torch.optim.AdamW(model.parameters(), 0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * (COUNT // BATCH))
    scaler = Scaler()
    sampler = DistributedSampler(Numbers(), seed=5, drop_last=True)
    loader = DataLoader(Numbers(), BATCH // size, sampler=sampler, drop_last=True)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "scaler": scaler, "loader": loader}
    step, checkpoint = 0, folder / "checkpoint.weft"
    if checkpoint.exists():
        state = torch.load(checkpoint)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["random"])
        step = state["step"]
    replica = DistributedDataParallel(model, bucket_cap_mb=0.0005)  # several buckets
    for epoch in range(sampler.epoch, EPOCHS):
        sampler.set_epoch(epoch)
        for numbers, inputs in loader:
            if (rank, step, attempt) == (*victim, "0"):
                shutil.copy(checkpoint, folder / "left.weft")
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.zero_grad()
            (replica(inputs) - inputs).square().mean().mul(scaler.scale).backward()
            for p in model.parameters():
                p.grad.div_(scaler.scale)
            optimizer.step()
            schedule.step()
            scaler.scale *= 1.5
            step += 1
            with open(folder / "samples", "a") as file:
                file.write(json.dumps([attempt, step, numbers.tolist()]) + "\n")
            if rank == 0 and step % 2 == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                torch.save({**state, "step": step, "random": torch.get_rng_state()}, checkpoint)
    if rank == 0:
        torch.save({"model": model.state_dict(), "lr": schedule.get_last_lr(), "step": step}, folder / "final.weft")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), tuple(map(int, sys.argv[2:])) or (-1, -1))
