/** Patterns of comments, and of texts that only look like comments, by language. */
const COMMENTS: Readonly<Record<string, RegExp>> = {
  // Group 1 is a comment. Strings, templates and regular expressions are matched and skipped.
  '.ts':
    /(\/\*[\s\S]*?\*\/|\/\/.*)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"|`(?:\\.|[^`\\])*`|(?<=[=(,:[!&|?{};]\s*|return )\/(?![/*])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\//g,
  '.lua': /(--\[\[[\s\S]*?\]\]|--.*)|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"/g,
  '.sql': /(\/\*[\s\S]*?\*\/|--.*)|'(?:''|[^'])*'/g,
};

/** Marks that open, continue and close comments. */
const MARKS = /^\s*(?:\/\*\*?|\*(?!\/)|\/\/+|--\[\[|--+)? ?|\s*(?:\*\/|\]\])\s*$/g;
/** Comments for programs. */
const DIRECTIVE = /^\s*(?:@ts-|biome-ignore|\/ <reference|#!)/;
/** Tags such as `@param name` and `@throws {Type}`. Each begins a new text. */
const TAG = /^\s*@\w+(?: \{[^}]*\})?\s*/;

/**
 * Returns the comments of a source file as Markdown, with one line for each line of the source. A
 * line without a comment is empty. So line numbers stay, and code separates comments.
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
