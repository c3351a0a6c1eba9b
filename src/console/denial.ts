// Error answers of the console. Errors of operations are those of the API (errors.ts).

const STATUS = {
  Signed_Out: 401,
  Wrong_Login: 401,
  Code_Needed: 401,
  Wrong_Code: 401,
  Confirm_Password: 403,
  Locked: 403,
  Not_Allowed: 403,
  Cross_Site: 403,
  Unknown_Path: 404,
  Link_Spent: 410,
  Wrong_Host: 421,
  ValidationError: 422,
  Too_Many_Tries: 429,
} as const;

type DenialName = keyof typeof STATUS;

/** The request is refused, with a text for the person at the browser. */
export class Denial extends Error {
  override readonly name: DenialName;
  readonly status: number;
  /** With 429: seconds to wait before the next try. */
  readonly retryAfterS: number | undefined;

  constructor(name: DenialName, message: string, retryAfterS?: number) {
    super(message);
    this.name = name;
    this.status = STATUS[name];
    this.retryAfterS = retryAfterS;
  }
}

/** Too many concurrent requests. */
export function busy(): Denial {
  return new Denial('Too_Many_Tries', 'Too many requests. Try again in a moment.', 1);
}
