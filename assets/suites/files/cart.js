const TAX_RATE = 0.2;
const FREE_SHIPPING_FROM = 50;
const SHIPPING_COST = 4.9;

class Cart {
  constructor(currency) {
    this.currency = currency;
    this.lines = [];
    this.coupon = null;
  }

  add(product, count) {
    const line = this.lines.find((l) => l.product.id === product.id);
    if (line) {
      line.count += count;
    } else {
      this.lines.push({ product: product, count: count });
    }
  }

  remove(productId) {
    this.lines = this.lines.filter((l) => l.product.id !== productId);
  }

  applyCoupon(coupon) {
    if (coupon.expires < Date.now()) {
      throw new Error("This coupon has expired.");
    }
    this.coupon = coupon;
  }

  subtotal() {
    let sum = 0;
    for (const line of this.lines) {
      sum += line.product.price * line.count;
    }
    return sum;
  }

  discount() {
    if (!this.coupon) {
      return 0;
    }
    return this.subtotal() * this.coupon.share;
  }

  shipping() {
    return this.subtotal() - this.discount() >= FREE_SHIPPING_FROM ? 0 : SHIPPING_COST;
  }

  total() {
    const net = this.subtotal() - this.discount() + this.shipping();
    return net * (1 + TAX_RATE);
  }

  describe() {
    const rows = this.lines.map((l) => `${l.count} x ${l.product.name}`);
    return rows.join("\n") + `\nTotal: ${this.total().toFixed(2)} ${this.currency}`;
  }
}

module.exports = { Cart };
