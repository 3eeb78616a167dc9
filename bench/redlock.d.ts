// The package's own types are not reachable through its `exports`.
declare module 'redlock' {
  export default class Redlock {
    constructor(clients: readonly object[]);
    acquire(resources: string[], durationMs: number): Promise<{ release(): Promise<unknown> }>;
  }
}
