const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const DAY_MS = 86_400_000;

const two = (value: number) => String(value).padStart(2, '0');
const year = (date: Date) => date.getUTCFullYear();
const dayName = (date: Date) => DAYS[date.getUTCDay()] ?? '';
const monthName = (date: Date) => MONTHS[date.getUTCMonth()] ?? '';
const hour12 = (date: Date) => date.getUTCHours() % 12 || 12;
const dayOfYear = (date: Date) => Math.floor((date.getTime() - Date.UTC(year(date), 0, 1)) / DAY_MS);
const daysInMonth = (date: Date) => new Date(Date.UTC(year(date), date.getUTCMonth() + 1, 0)).getUTCDate();

/** The Thursday of the same week: its year and week are those that ISO 8601 gives the whole week. */
const thursday = (date: Date) => new Date(date.getTime() + (4 - (date.getUTCDay() || 7)) * DAY_MS);

function suffix(day: number): string {
  if (day >= 11 && day <= 13) return 'th';
  return ['th', 'st', 'nd', 'rd'][day % 10] ?? 'th';
}

/** The letters of PHP's date(), because that is what the tag's formats are written in. */
const LETTERS: ReadonlyMap<string, (date: Date) => string | number> = new Map<string, (date: Date) => string | number>([
  ['d', (date) => two(date.getUTCDate())],
  ['j', (date) => date.getUTCDate()],
  ['S', (date) => suffix(date.getUTCDate())],
  ['D', (date) => dayName(date).slice(0, 3)],
  ['l', dayName],
  ['N', (date) => date.getUTCDay() || 7],
  ['w', (date) => date.getUTCDay()],
  ['z', dayOfYear],
  ['W', (date) => two(Math.floor(dayOfYear(thursday(date)) / 7) + 1)],
  ['o', (date) => year(thursday(date))],
  ['m', (date) => two(date.getUTCMonth() + 1)],
  ['n', (date) => date.getUTCMonth() + 1],
  ['M', (date) => monthName(date).slice(0, 3)],
  ['F', monthName],
  ['t', daysInMonth],
  ['L', (date) => (new Date(Date.UTC(year(date), 1, 29)).getUTCMonth() === 1 ? 1 : 0)],
  ['Y', year],
  ['y', (date) => two(year(date) % 100)],
  ['a', (date) => (date.getUTCHours() < 12 ? 'am' : 'pm')],
  ['A', (date) => (date.getUTCHours() < 12 ? 'AM' : 'PM')],
  ['g', hour12],
  ['h', (date) => two(hour12(date))],
  ['G', (date) => date.getUTCHours()],
  ['H', (date) => two(date.getUTCHours())],
  ['i', (date) => two(date.getUTCMinutes())],
  ['s', (date) => two(date.getUTCSeconds())],
  ['e', () => 'UTC'],
  ['T', () => 'UTC'],
  ['P', () => '+00:00'],
  ['O', () => '+0000'],
  ['Z', () => 0],
  ['I', () => 0],
  ['c', (date) => `${date.toISOString().slice(0, 19)}+00:00`],
  ['U', (date) => Math.floor(date.getTime() / 1000)],
  ['r', (date) => date.toUTCString().replace('GMT', '+0000')],
]);

/** A time in UTC, in a format of PHP's date(); a backslash lets the next character stand for itself, as do those that mean nothing. */
export function formatDate(date: Date, format: string): string {
  return format.replace(
    /\\([\s\S]?)|[a-z]/gi,
    (letter: string, escaped?: string) => escaped ?? String(LETTERS.get(letter)?.(date) ?? letter),
  );
}
