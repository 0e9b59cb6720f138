"""A graph convolution network that classifies the nodes of a graph."""

import torch
import torch.nn.functional as F
from common import drawn, fill, labels, report
from torch import nn
from torch.optim import Adam


class GraphConv(nn.Module):
    def __init__(self, input_dim, output_dim, use_bias=False):
        super().__init__()
        self.kernel = nn.Parameter(torch.Tensor(input_dim, output_dim))
        nn.init.xavier_normal_(self.kernel)
        self.bias = None
        if use_bias:
            self.bias = nn.Parameter(torch.Tensor(output_dim))
            nn.init.zeros_(self.bias)

    def forward(self, input_tensor, adj_mat):
        support = torch.mm(input_tensor, self.kernel)
        output = torch.spmm(adj_mat, support) if adj_mat.is_sparse else torch.mm(adj_mat, support)
        return output if self.bias is None else output + self.bias


class GCN(nn.Module):
    def __init__(self, input_dim, hidden_dim, output_dim, use_bias=True, dropout_p=0.1):
        super().__init__()
        self.gc1 = GraphConv(input_dim, hidden_dim, use_bias=use_bias)
        self.gc2 = GraphConv(hidden_dim, output_dim, use_bias=use_bias)
        self.dropout = nn.Dropout(dropout_p)

    def forward(self, input_tensor, adj_mat):
        x = F.relu(self.gc1(input_tensor, adj_mat))
        x = self.dropout(x)
        return F.log_softmax(self.gc2(x, adj_mat), dim=1)


def load_graph(nodes=40, classes=4):
    label = labels(nodes, classes)
    features = F.one_hot(label, classes).float() @ drawn(classes, 12) + 0.5 * drawn(nodes, 12, seed=1)
    same = label[:, None] == label[None, :]
    adj = ((drawn(nodes, nodes, seed=2) > 1.0) & same).float()
    adj = torch.maximum(adj, adj.t()) + torch.eye(nodes)
    degree = adj.sum(dim=1).pow(-0.5)
    return features / features.norm(dim=1, keepdim=True), label, degree[:, None] * adj * degree[None, :]


def train_iter(epoch, model, optimizer, criterion, features, adj, target, mask_train):
    model.train()
    optimizer.zero_grad()
    loss = criterion(model(features, adj)[mask_train], target[mask_train])
    loss.backward()
    optimizer.step()
    return loss


def test(model, criterion, features, adj, target, mask):
    model.eval()
    with torch.no_grad():
        output = model(features, adj)
        output, target = output[mask], target[mask]
        acc = (output.argmax(dim=1) == target).sum() / len(target)
        return criterion(output, target).item(), acc.item()


features, target, adj = load_graph()
idx = torch.arange(len(target))
idx_train, idx_test = idx[:30], idx[30:]
gcn = fill(GCN(features.shape[1], 16, int(target.max()) + 1))
optimizer = Adam(gcn.parameters(), lr=0.05, weight_decay=5e-4)
criterion = nn.NLLLoss()
first, _ = test(gcn, criterion, features, adj, target, idx_test)
for epoch in range(12):
    train_iter(epoch + 1, gcn, optimizer, criterion, features, adj, target, idx_train)
last, acc = test(gcn, criterion, features, adj, target, idx_test)
print(f"Test set results: loss {last:.4f} accuracy {acc:.4f}")
report(first, last)
