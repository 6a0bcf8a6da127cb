import type { FormEvent } from "react";
import { giveToken, hasToken } from "../api/token";
import { PageHead } from "../parts/PageHead";

/** In the place of the view while the query API wants a token. */
export function TokenForm() {
  return (
    <>
      <PageHead title="Token needed" />
      <form className="state token" onSubmit={submit}>
        <label htmlFor="token">
          {hasToken() ? "The query API did not accept this token." : "The query API asks for a token."} It is the setting{" "}
          <code>pipeline.api_token</code> of the server.
        </label>
        <input id="token" name="token" type="password" autoComplete="off" required />
        <button type="submit">Continue</button>
      </form>
    </>
  );
}

function submit(event: FormEvent<HTMLFormElement>): void {
  event.preventDefault();
  giveToken(String(new FormData(event.currentTarget).get("token") ?? ""));
}
