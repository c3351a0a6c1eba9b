import { readFileSync } from 'node:fs';

/** A fenced block of a document: what an operator copies. */
export interface Step {
  /** The heading that it stands under. */
  readonly heading: string;
  readonly language: string;
  readonly text: string;
}

/** Every fenced block of a document below docs/, in order. */
export function stepsOf(document: string): readonly Step[] {
  const text = readFileSync(new URL(`../../../docs/${document}`, import.meta.url), 'utf8');
  const steps: Step[] = [];
  let heading = '';
  for (const [, title, language = '', block = ''] of text.matchAll(/^#{1,3} (.*)$|^```(\w*)\n([\s\S]*?)^```$/gm)) {
    if (title !== undefined) heading = title;
    else steps.push({ heading, language, text: block });
  }
  return steps;
}

/** The one block of a language under a heading that begins so. */
export function stepAt(steps: readonly Step[], heading: string, start: string): string {
  const found = steps.filter((step) => step.heading === heading && step.text.startsWith(start));
  const [only] = found;
  if (!only || found.length > 1) throw new Error(`${found.length} blocks under "${heading}" begin with "${start}"`);
  return only.text;
}
