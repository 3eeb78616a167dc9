import { gatewayAt } from '../gateway-client.js';
import type { StorageAddress } from '../job.js';
import type { FencedDocument } from './document.js';
import { objectDocument } from './object.js';
import { recordDocument } from './record.js';

type GatewayAddress = Extract<StorageAddress, { readonly kind: 'gateway' }>;

export function openFenced({ url, behind, name }: GatewayAddress): FencedDocument {
  const gateway = gatewayAt(url);
  const document =
    behind === 's3' ? objectDocument(gateway.objects, name) : recordDocument(gateway, name);
  return {
    ...document,
    async prepare() {
      // The gateway has tested its server. This opens the connection to the gateway.
      await document.highest();
    },
    [Symbol.asyncDispose]: async () => {},
  };
}
