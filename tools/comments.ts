/** Comments and the texts that look like comments but are none, by language. */
const COMMENTS: Readonly<Record<string, RegExp>> = {
  // Group 1 is a comment. Strings, templates and regular expressions are matched to be skipped.
  '.ts':
    /(\/\*[\s\S]*?\*\/|\/\/.*)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|(?<=[=(,:[!&|?{};]\s*|return )\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\//g,
  '.lua': /(--\[\[[\s\S]*?\]\]|--.*)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/g,
  '.sql': /(\/\*[\s\S]*?\*\/|--.*)|'(?:''|[^'])*'/g,
};

/** Opening, continuing and closing marks of comments. */
const MARKS = /^\s*(?:\/\*\*?|\*(?!\/)|\/\/+|--\[\[|--+)? ?|\s*(?:\*\/|\]\])\s*$/g;
/** Comments for programs. */
const DIRECTIVE = /^\s*(?:@ts-|biome-ignore|\/ <reference|#!)/;
/** `@param name`, `@throws {Type}`: each begins a text of its own. */
const TAG = /^\s*@\w+(?: \{[^}]*\})?\s*/;

/**
 * Returns the comments of a source file as Markdown: one line for each line of the source, which is
 * empty if it has no comment. So line numbers stay, and code between two comments parts them.
 */
export function commentsOf(extension: string, source: string): string[] {
  const texts: string[] = source.split('\n').map(() => '');
  let number = 0;
  let from = 0;
  for (const { 1: comment, index } of source.matchAll(COMMENTS[extension] ?? /(?!)/g)) {
    if (comment === undefined) continue;
    number += source.slice(from, index).split('\n').length - 1;
    from = index;
    for (const [at, line] of comment.split('\n').entries()) {
      const text = line.replace(MARKS, '');
      texts[number + at] = DIRECTIVE.test(text) ? '' : text.replace(TAG, '- ');
    }
  }
  return texts;
}
