declare module 'dynalite' {
  import type { Server } from 'node:http';

  /** An emulator of DynamoDB, in memory. */
  export default function dynalite(options: { readonly createTableMs: number }): Server;
}
