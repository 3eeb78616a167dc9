import type { Request } from 'express';
import { isLoopback } from './config-fields.js';
import { Problem } from './problem.js';

/**
 * Refuses what a web page of another site sends through a browser of this machine. Without
 * credentials, nothing else keeps such pages out: they are on this machine, as far as the network
 * can tell. A page reaches the gateway in two ways:
 *
 * - Its author lets the page's own domain resolve to 127.0.0.1 (DNS rebinding). For the browser,
 *   page and gateway are then one origin, and only `Host` still has the foreign name. The names of
 *   loopback resolve to nothing else, so a page that has one came from this machine.
 * - The page names a host of loopback. The browser then tells its site in `Origin` or
 *   `Sec-Fetch-Site`, which scripts cannot set. A page of another port is foreign, too.
 *
 * No browser sends HTTP/1.0, the only version without `Host`. Programs of this machine are not kept
 * out. A gateway with credentials needs none of this, because a page has no key to send.
 *
 * @throws {Problem} `forbidden`
 */
export function refusePages(request: Request): void {
  const host = request.get('host');
  if (host !== undefined && !isLoopback(host.replace(/:\d+$/, '')))
    throw new Problem(
      'forbidden',
      'a gateway without credentials answers only requests for this machine, such as localhost: configure credentials to serve other host names',
    );
  const origin = request.get('origin');
  const site = request.get('sec-fetch-site') ?? 'none';
  const isOwn = origin === undefined || origin === `http://${host}`;
  if (!isOwn || !['same-origin', 'none'].includes(site))
    throw new Problem(
      'forbidden',
      'a gateway without credentials answers no page of another site, and no browser on its behalf',
    );
}
