import { signal } from '@preact/signals';
import { LinkError, linkTo, parseRoute, type Route } from './route.ts';

/** The place that the reader is at, or the error of its link. */
export const route = signal<Route | LinkError>({ page: 'start' });

/** Goes to the place that the address names. */
export function follow(): void {
  try {
    route.value = parseRoute(location.hash);
  } catch (error) {
    if (!(error instanceof LinkError)) throw error;
    route.value = error;
  }
}

/** Changes a part of the present state of a page. A later call sees earlier changes. */
export function change<Name extends Route['page']>(
  page: Name,
  part: Partial<Extract<Route, { page: Name }>>,
): void {
  const now = route.value;
  if (now instanceof LinkError || now.page !== page) return;
  const next = { ...now, ...part };
  // `hashchange` comes later. A call before that event must see this change.
  route.value = next;
  location.hash = linkTo(next);
}
