import type { Route } from './exchange.js';
export function openApiOf(_: readonly Route[]): object {
  return {};
}
