/** What a first hour takes: seconds, commands, questions, records. */
export interface Tally {
  /** What is no part of the hour: it is made before. */
  aside<T>(what: string, run: () => Promise<T>): Promise<T>;
  /** Commands of a script, one a line; answers what the last printed. */
  typed(what: string, script: string, run: (line: string) => Promise<string>): Promise<string>;
  /** Answers that the operator has to give. */
  asked<T>(what: string, questions: number, run: () => Promise<T>): Promise<T>;
  /** A file that the operator copies. */
  wrote<T>(what: string, run: () => Promise<T>): Promise<T>;
  published<T>(records: number, run: () => Promise<T>): Promise<T>;
  /** Says when something worked for the first time. */
  reached(what: string): void;
  sums(): Readonly<Record<'commands' | 'questions' | 'files' | 'records', number>>;
  print(): void;
}

export function createTally(): Tally {
  const lines: string[] = [];
  const sums = { commands: 0, questions: 0, files: 0, records: 0 };
  let began: number | undefined;
  const seconds = (from: number) => ((performance.now() - from) / 1000).toFixed(1).padStart(6);
  async function timed<T>(what: string, run: () => Promise<T>): Promise<T> {
    const from = performance.now();
    began ??= from;
    const result = await run();
    lines.push(`${seconds(from)} s  ${what}`);
    return result;
  }
  return {
    async aside(what, run) {
      const from = performance.now();
      const result = await run();
      lines.push(`${seconds(from)} s  (before: ${what})`);
      return result;
    },
    typed: (_, script, run) => {
      const commands = script
        .split('\n')
        .map((line) => line.replace(/\s+#.*$/, '').trim())
        .filter((line) => line !== '');
      sums.commands += commands.length;
      return commands.reduce<Promise<string>>(async (before, line) => {
        await before;
        return timed(line, () => run(line));
      }, Promise.resolve(''));
    },
    asked(what, questions, run) {
      sums.questions += questions;
      return timed(`${questions} answers: ${what}`, run);
    },
    wrote(what, run) {
      sums.files++;
      return timed(`a file: ${what}`, run);
    },
    published(records, run) {
      sums.records += records;
      return timed(`${records} records`, run);
    },
    reached(what) {
      lines.push(`${seconds(began ?? 0)} s  after the start: ${what}`);
    },
    sums: () => ({ ...sums }),
    print() {
      console.log(lines.map((line) => `      ${line}`).join('\n'));
      const { commands, questions, files, records } = sums;
      console.log(`      ${commands} commands, ${questions} questions, ${files} files, ${records} records`);
    },
  };
}
