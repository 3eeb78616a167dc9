import { FencedGateway } from '@fenced/client';

const known = new Map<string, FencedGateway>();

/** One client for each gateway: the lock's and the document's must be the same, since it knows the signed tokens. */
export function gatewayAt(url: string): FencedGateway {
  const gateway = known.get(url) ?? new FencedGateway({ url });
  known.set(url, gateway);
  return gateway;
}
