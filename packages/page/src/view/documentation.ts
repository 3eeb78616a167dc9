const DOCS = 'https://github.com/fenced-locks/fenced/blob/main/docs';

/** The address of a page of the documentation, or of a part of it: `tokens.md#acquire`. */
export function documentation(page: string): string {
  return `${DOCS}/${page}`;
}
