"""The loop of the usual classification example: meters, schedule, checkpoints; stopped and resumed."""

import argparse
import os
import shutil
import tempfile
import time
from enum import Enum

import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.optim
import torch.utils.data
from common import drawn, fill, labels, report
from torch.optim.lr_scheduler import StepLR


class Summary(Enum):
    NONE = 0
    AVERAGE = 1


class AverageMeter:
    """Computes and stores the average and current value"""

    def __init__(self, name, fmt=":f", summary_type=Summary.AVERAGE):
        self.name, self.fmt, self.summary_type = name, fmt, summary_type
        self.val = self.avg = self.sum = self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return ("{name} {val" + self.fmt + "} ({avg" + self.fmt + "})").format(**self.__dict__)


def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        maxk = max(topk)
        _, pred = output.topk(maxk, 1, True, True)
        correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / target.size(0)) for k in topk]


def train(loader, model, criterion, optimizer, epoch, device):
    batch_time, losses, top1 = AverageMeter("Time", ":6.3f"), AverageMeter("Loss", ":.4e"), AverageMeter("Acc@1")
    model.train()
    end = time.time()
    for images, target in loader:
        images, target = images.to(device, non_blocking=True), target.to(device, non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        acc1, _ = accuracy(output, target, topk=(1, 3))
        losses.update(loss.item(), images.size(0))
        top1.update(acc1[0].item(), images.size(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_time.update(time.time() - end)
        end = time.time()
    print(f"Epoch: [{epoch}]", batch_time, losses, top1, sep="\t")
    return losses.avg


def save_checkpoint(state, is_best, folder):
    torch.save(state, os.path.join(folder, "checkpoint.pth.tar"))
    if is_best:
        shutil.copyfile(os.path.join(folder, "checkpoint.pth.tar"), os.path.join(folder, "model_best.pth.tar"))


def main_worker(args):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layers = [nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True), nn.AdaptiveAvgPool2d(2)]
    model = fill(nn.Sequential(*layers, nn.Flatten(), nn.Linear(32, 5))).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.SGD(model.parameters(), args.lr, momentum=0.9, weight_decay=1e-4)
    scheduler = StepLR(optimizer, step_size=2, gamma=0.1)
    start_epoch = 0
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device)
        start_epoch = checkpoint["epoch"]
        model.load_state_dict(checkpoint["state_dict"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
    cudnn.benchmark = True
    target = labels(40, 5)
    images = drawn(5, 3, 8, 8, seed=1)[target] + 0.1 * drawn(40, 3, 8, 8, seed=2)
    dataset = torch.utils.data.TensorDataset(images, target)
    loader = torch.utils.data.DataLoader(dataset, batch_size=20, shuffle=False, num_workers=0, pin_memory=True)
    losses = []
    for epoch in range(start_epoch, args.epochs):
        losses.append(train(loader, model, criterion, optimizer, epoch, device))
        scheduler.step()
        state = {"epoch": epoch + 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
        save_checkpoint({**state, "scheduler": scheduler.state_dict()}, losses[-1] <= min(losses), args.folder)
    return losses


parser = argparse.ArgumentParser(description="ImageNet-like training")
parser.add_argument("--epochs", default=4, type=int)
parser.add_argument("--lr", default=0.2, type=float)
parser.add_argument("--resume", default="", type=str, metavar="PATH")
args = parser.parse_args()
with tempfile.TemporaryDirectory() as args.folder:
    whole = main_worker(args)
    half = main_worker(argparse.Namespace(**{**vars(args), "epochs": 2}))
    args.resume = os.path.join(args.folder, "checkpoint.pth.tar")
    assert half + main_worker(args) == whole, "a resumed run differs"
report(whole[0], whole[-1])
