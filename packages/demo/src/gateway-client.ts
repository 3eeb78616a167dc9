import { FencedGateway } from '@fenced/client';

const known = new Map<string, FencedGateway>();

/**
 * Returns the only client for a gateway. Lock and document share it, because it keeps the signed
 * tokens.
 */
export function gatewayAt(url: string): FencedGateway {
  const gateway = known.get(url) ?? new FencedGateway({ url });
  known.set(url, gateway);
  return gateway;
}
