// SPDX-License-Identifier: GPL-2.0
/*
 * Ethernet between user-mode kernels: wire0, wire1, ..., each over a datagram socket that the
 * process was started with; a frame is a datagram. The kernel's own vector driver takes the same
 * sockets, but lockdep finds that vector_poll() takes a lock in softirqs that is not safe there,
 * and is off from then on.
 */
#include <linux/etherdevice.h>
#include <linux/interrupt.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/timer.h>

#include <irq_kern.h>
#include <os.h>

#define WIRES_MAX	8
#define FRAMES		256	/* received in one interrupt */

static int fds[WIRES_MAX];
static int nr_fds;
module_param_array(fds, int, &nr_fds, 0444);
MODULE_PARM_DESC(fds, "descriptors of the sockets");

static int mtu = 16000;
module_param(mtu, int, 0444);
MODULE_PARM_DESC(mtu, "bytes in a frame without its header");

struct wire {
	struct net_device *dev;
	int fd;
	int irq;
	struct timer_list retry;
};

static struct net_device *wires[WIRES_MAX];

static irqreturn_t wire_irq(int irq, void *data)
{
	struct wire *wire = data;
	struct net_device *dev = wire->dev;
	u32 room = mtu + ETH_HLEN, i;
	struct sk_buff *skb;
	int len;

	for (i = 0; i < FRAMES; i++) {
		skb = netdev_alloc_skb_ip_align(dev, room);
		if (!skb)
			break;
		len = os_read_file(wire->fd, skb->data, room);
		if (len < ETH_HLEN) {
			dev_kfree_skb_any(skb);
			break;
		}
		skb_put(skb, len);
		skb->protocol = eth_type_trans(skb, dev);
		netif_rx(skb);
	}
	return IRQ_HANDLED;
}

static void wire_retry(struct timer_list *timer)
{
	struct wire *wire = container_of(timer, struct wire, retry);

	netif_wake_queue(wire->dev);
}

static netdev_tx_t wire_xmit(struct sk_buff *skb, struct net_device *dev)
{
	struct wire *wire = netdev_priv(dev);

	/* the other side reads too slowly, or hangs */
	if (os_write_file(wire->fd, skb->data, skb->len) == -EAGAIN) {
		netif_stop_queue(dev);
		mod_timer(&wire->retry, jiffies + 1);
		return NETDEV_TX_BUSY;
	}
	dev_consume_skb_any(skb);
	return NETDEV_TX_OK;
}

static int wire_open(struct net_device *dev)
{
	struct wire *wire = netdev_priv(dev);

	wire->irq = um_request_irq(UM_IRQ_ALLOC, wire->fd, IRQ_READ, wire_irq, IRQF_SHARED,
				   dev->name, wire);
	if (wire->irq < 0)
		return wire->irq;
	netif_start_queue(dev);
	return 0;
}

static int wire_stop(struct net_device *dev)
{
	struct wire *wire = netdev_priv(dev);

	netif_stop_queue(dev);
	timer_delete_sync(&wire->retry);
	um_free_irq(wire->irq, wire);
	return 0;
}

static const struct net_device_ops wire_ops = {
	.ndo_open = wire_open,
	.ndo_stop = wire_stop,
	.ndo_start_xmit = wire_xmit,
};

static void wires_remove(void)
{
	int i;

	for (i = 0; i < nr_fds && wires[i]; i++) {
		unregister_netdev(wires[i]);
		free_netdev(wires[i]);
	}
}

static int wire_add(int i)
{
	struct net_device *dev = alloc_etherdev(sizeof(struct wire));
	struct wire *wire;
	int err;

	if (!dev)
		return -ENOMEM;
	wire = netdev_priv(dev);
	wire->dev = dev;
	wire->fd = fds[i];
	timer_setup(&wire->retry, wire_retry, 0);
	snprintf(dev->name, sizeof(dev->name), "wire%d", i);
	dev->netdev_ops = &wire_ops;
	dev->max_mtu = mtu;
	dev->mtu = mtu;
	eth_hw_addr_random(dev);
	os_set_fd_block(wire->fd, 0);
	err = register_netdev(dev);
	if (err)
		free_netdev(dev);
	else
		wires[i] = dev;
	return err;
}

static int __init wire_init(void)
{
	int i, err = 0;

	for (i = 0; i < nr_fds && !err; i++)
		err = wire_add(i);
	if (err)
		wires_remove();
	return err;
}
module_init(wire_init);

static void __exit wire_exit(void)
{
	wires_remove();
}
module_exit(wire_exit);

MODULE_DESCRIPTION("Ethernet between user-mode kernels");
MODULE_LICENSE("GPL");
