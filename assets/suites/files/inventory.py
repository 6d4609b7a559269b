import csv
from dataclasses import dataclass, field


@dataclass
class Item:
    sku: str
    name: str
    quantity: int = 0
    price: float = 0.0
    tags: list[str] = field(default_factory=list)


class Inventory:
    def __init__(self):
        self.items = {}
        self.log = []

    def add(self, sku, name, quantity, price):
        if sku in self.items:
            self.items[sku].quantity += quantity
        else:
            self.items[sku] = Item(sku, name, quantity, price)
        self.log.append(("add", sku, quantity))

    def remove(self, sku, quantity):
        item = self.items.get(sku)
        if item is None:
            raise KeyError(f"no item {sku}")
        if item.quantity < quantity:
            raise ValueError(f"only {item.quantity} of {sku} left")
        item.quantity -= quantity
        self.log.append(("remove", sku, quantity))

    def total_value(self):
        total = 0.0
        for item in self.items.values():
            total += item.quantity * item.price
        return total

    def low_stock(self, limit=5):
        found = []
        for item in self.items.values():
            if item.quantity <= limit:
                found.append(item)
        return found

    def load(self, path):
        with open(path, newline="") as file:
            for row in csv.DictReader(file):
                self.add(row["sku"], row["name"], int(row["quantity"]), float(row["price"]))

    def save(self, path):
        with open(path, "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sku", "name", "quantity", "price"])
            for item in self.items.values():
                writer.writerow([item.sku, item.name, item.quantity, item.price])
