/**
 * A line of a trace for a reader. Random ids are cut to four digits. Of a roster, which a node
 * keeps of all nodes, only the incarnations stay. Tokens lose their leading zeros.
 */
export function shortLine(line: string): string {
  return line
    .replace(/\b([0-9a-f]{4})[0-9a-f]{4}\.\d+\.\d+\b/g, '$1…')
    .replace(/-([0-9a-f]{4})[0-9a-f]{12}\b/g, '-$1…')
    .replace(/(?<= )0+(?=\d+(?: |$))/g, '')
    .replaceAll('{fenced}:notify:', '')
    .replace(/(?<= )\d*:[^\s:,]*(?:,\d*:[^\s:,]*)+/g, roster);
}

/** `7:aa93…,0:` becomes `[aa93… –]`. */
function roster(text: string): string {
  const incarnations = text.split(',').map((one) => one.slice(one.indexOf(':') + 1) || '–');
  return `[${incarnations.join(' ')}]`;
}
