/** What a scrape showed. */
interface Scrape {
  readonly text: string;
  /**
   * The value of one series: `name` or `name{label="value",…}` with its labels in any order; 0 when it is not there.
   */
  of(series: string): number;
  /** The sum of all series of a name whose labels are at least these. */
  sum(name: string, labels?: Readonly<Record<string, string>>): number;
  /** Every series, as text. */
  readonly series: readonly string[];
  /** Names of metrics, as `# TYPE` says them. */
  readonly names: readonly string[];
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/;
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g;

const labelsOf = (text = ''): [string, string][] =>
  [...text.matchAll(LABEL)].map(([, name = '', value = '']): [string, string] => [name, value]).sort();
const keyOf = (name: string, labels: readonly (readonly [string, string])[]) =>
  `${name}{${labels.map(([label, value]) => `${label}="${value}"`).join(',')}}`;

/** Reads Prometheus's text format. */
export function readScrape(text: string): Scrape {
  const found = text.split('\n').flatMap((line) => {
    const [, name = '', labels, value] = LINE.exec(line) ?? [];
    return value === undefined ? [] : [{ name, labels: labelsOf(labels), value: Number(value) }];
  });
  const values = new Map(found.map(({ name, labels, value }) => [keyOf(name, labels), value]));
  return {
    text,
    of(series) {
      const [, name = '', labels] = LINE.exec(`${series} 0`) ?? [];
      return values.get(keyOf(name, labelsOf(labels))) ?? 0;
    },
    sum: (name, wanted = {}) =>
      found
        .filter(
          (one) =>
            one.name === name &&
            Object.entries(wanted).every(([label, value]) =>
              one.labels.some(([had, is]) => had === label && is === value),
            ),
        )
        .reduce((sum, { value }) => sum + value, 0),
    series: [...values.keys()],
    names: [...text.matchAll(/^# TYPE (\S+) /gm)].map(([, name = '']) => name),
  };
}

/** Reads /metrics as Prometheus does. */
export async function scrape(base: string): Promise<Scrape> {
  const response = await fetch(`${base}/metrics`);
  const text = await response.text();
  if (response.status !== 200) throw new Error(`/metrics answered ${response.status}: ${text}`);
  return readScrape(text);
}
