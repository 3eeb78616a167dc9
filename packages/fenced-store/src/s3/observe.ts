/** A middleware that looks and passes on, and so fits every command. */
type Passing = <Args extends object, Result>(
  next: (args: Args) => Promise<Result>,
) => (args: Args) => Promise<Result>;

interface Place<Step extends string> {
  readonly step: Step;
  readonly name: string;
  readonly priority: 'high' | 'low';
  readonly override: true;
}

/** The one method of a command's middleware stack that is used. */
interface Stack {
  add(middleware: Passing, place: Place<'finalizeRequest'>): void;
  add(middleware: Passing, place: Place<'deserialize'>): void;
}

/** Where a command went; without an address it has not been handed to the network. */
export interface Observed {
  readonly address: string | undefined;
}

/**
 * Notes where a command is sent, and with `once` sees to it that it is sent only once.
 *
 * The SDK repeats a PUT by itself after 5xx and lost connections; if the first copy was applied, the second is answered 412,
 * and the two can no longer be told apart. `maxAttempts` belongs to the client, which is the caller's, so the command brings
 * its own middleware in the place (name, step and priority) of the SDK's `retryMiddleware`: on merging the two stacks the
 * command's wins, for this one request. Should an SDK move its middleware, merging throws and nothing is sent.
 */
export function observe(stack: Stack, options: { readonly once: boolean }): Observed {
  const observed: { address: string | undefined } = { address: undefined };
  stack.add(
    (next) => async (args) => {
      observed.address = addressOf(args);
      return next(args);
    },
    { step: 'deserialize', name: 'fencedAddress', priority: 'low', override: true },
  );
  if (options.once)
    stack.add((next) => next, {
      step: 'finalizeRequest',
      name: 'retryMiddleware',
      priority: 'high',
      override: true,
    });
  return observed;
}

function addressOf(args: object): string {
  const { request } = args as {
    readonly request?: { protocol?: string; hostname?: string; port?: number };
  };
  const port = request?.port === undefined ? '' : `:${request.port}`;
  return `${request?.protocol ?? ''}//${request?.hostname ?? ''}${port}`;
}
