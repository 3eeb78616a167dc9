import { createHash } from 'node:crypto';

/**
 * Longest name of a node. Longer names end with a digest instead, so that a transaction over a set
 * of the longest resources fits into a request.
 */
const NAME_LENGTH_MAX = 120;

/** The nodes of one lock service, below its root. */
export class Paths {
  readonly root: string;
  readonly leases: string;
  readonly queues: string;

  constructor(root: string) {
    this.root = root;
    this.leases = `${root}/leases`;
    this.queues = `${root}/queues`;
  }

  /** Exists while a lease of the resource does. */
  lease(resource: string): string {
    return `${this.leases}/${nodeName(resource)}`;
  }

  /** Exists while this owner holds that lease. */
  owner(resource: string, owner: string): string {
    return `${this.lease(resource)}/${nodeName(owner)}`;
  }

  /** The parent of the waiters' nodes. */
  queue(resource: string): string {
    return `${this.queues}/${nodeName(resource)}`;
  }
}

/** Any text as the name of a node. ZooKeeper forbids slashes, dots alone and control characters. */
function nodeName(text: string): string {
  const name = encodeURIComponent(text).replace(/^\.+$/, (dots) => dots.replaceAll('.', '%2E'));
  if (name.length <= NAME_LENGTH_MAX) return name;
  const digest = createHash('sha256').update(text).digest('base64url');
  return `${name.slice(0, NAME_LENGTH_MAX - digest.length - 1)}~${digest}`;
}
