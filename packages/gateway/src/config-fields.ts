import { readFileSync } from 'node:fs';
import * as z from 'zod';

/** The path of a file, which becomes the text in it, without the line end. */
export const contents: z.ZodType<string> = z
  .string()
  .min(1)
  .transform((path, context) => {
    try {
      const text = readFileSync(path, 'utf8').trim();
      if (text !== '') return text;
      context.addIssue(`the file is empty path=${path}`);
    } catch (error) {
      context.addIssue(`the file cannot be read: ${(error as Error).message}`);
    }
    return z.NEVER;
  });

/** Its message does not show what was given: there may be a password in it. */
export function urlOf(protocols: readonly string[]): z.ZodString {
  return z
    .string()
    .refine(
      (text) => URL.canParse(text) && protocols.includes(new URL(text).protocol),
      `must be a URL that begins with ${protocols.map((protocol) => `${protocol}//`).join(' or ')}`,
    );
}

/** Also asked where something else in the object is wrong, so that all problems are told at once. */
export const ALWAYS: { when(): boolean } = { when: () => true };

/** How many of the fields are given. */
export function given(fields: unknown, ...names: readonly string[]): number {
  return names.filter((name) => Object(fields)[name] !== undefined).length;
}

/** Whether no two have the same value of that field. */
export function areDistinct(entries: unknown, field: string): boolean {
  const values = Array.isArray(entries) ? entries.map((entry) => Object(entry)[field]) : [];
  const told = values.filter((value) => value !== undefined);
  return new Set(told).size === told.length;
}

/** Whether an address can be reached from this machine alone. */
export function isLoopback(host: string): boolean {
  return /^(localhost|127(\.\d{1,3}){3}|\[?::1\]?)$/i.test(host);
}
