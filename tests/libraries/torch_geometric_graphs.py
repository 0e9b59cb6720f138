"""torch_geometric: GCN, GAT and SAGE on a small graph, and whole graphs in a batch."""

import torch
from common import fill, show, train, waves
from torch import nn
from torch_geometric.data import Batch, Data
from torch_geometric.nn import GATConv, GCNConv, GINConv, SAGEConv, global_mean_pool
from torch_geometric.utils import add_self_loops, degree, softmax, to_dense_adj, to_undirected

NODES = 12
at = torch.arange(3 * NODES)
edges = to_undirected(torch.stack([at % NODES, (at * at + 5 * at + 1) % NODES]))
x, labels = waves(NODES, 6), torch.arange(NODES) % 3
show("edges", edges.shape, degree(edges[0], NODES))
show("loops", add_self_loops(edges)[0].sum(), to_dense_adj(edges).sum(1))
show("softmax", softmax(waves(edges.shape[1]), edges[0]))


class Net(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


nets = nn.ModuleDict(
    {
        "gcn": Net(GCNConv(6, 8, cached=True), GCNConv(8, 3)),
        "gat": Net(GATConv(6, 4, heads=2), GATConv(8, 3, concat=False)),
        "sage": Net(SAGEConv(6, 8), SAGEConv(8, 3, aggr="max")),
    }
)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = GINConv(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8)), train_eps=True)
        self.head = nn.Linear(8, 2)

    def forward(self, batch):
        return self.head(global_mean_pool(self.conv(batch.x, batch.edge_index), batch.batch))


sizes = (4, 7, 5)
graphs = [
    Data(x=waves(size, 6) * size, edge_index=torch.stack([torch.arange(size), torch.arange(size).roll(1)]))
    for size in sizes
]
batch = Batch.from_data_list(graphs)
model = fill(nn.ModuleDict({**nets, "whole": Classifier()}))
for name, net in nets.items():
    show(name, net(x, edges))
show("whole", model["whole"](batch))


def loss():
    losses = [nn.functional.cross_entropy(net(x, edges), labels) for net in nets.values()]
    return sum(losses, nn.functional.cross_entropy(model["whole"](batch), torch.tensor([0, 1, 1])))


train(model, loss)
