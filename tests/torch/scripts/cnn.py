"""What the training scripts share: a small CNN, and images that no file holds."""

import torch

BATCH = 16


class Images(torch.utils.data.Dataset):
    """Random images [1, 12, 12]; the label says in which of ten stripes is the most light."""

    def __init__(self, count=300):
        self.images = torch.rand(count, 1, 12, 12, generator=torch.Generator().manual_seed(0))
        self.labels = self.images[:, 0, :10].sum(2).argmax(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Net(torch.nn.Module):
    """Convolutions, a normalization with buffers, a linear layer."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(1, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(8, 16, 3),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(144, 10),
        )

    def forward(self, images):
        return self.layers(images)


def train_epoch(model, device, loader, optimizer):
    """Makes a step for each batch; returns the last loss."""
    model.train()
    for images, labels in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
    return loss.item()
