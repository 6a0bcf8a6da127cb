import { useConnection } from "../api/connection";
import { useTokenWanted } from "../api/token";
import { PageHead } from "../parts/PageHead";
import { State } from "../parts/State";
import { ConnectionBanner } from "./ConnectionBanner";
import { Navigation } from "./Navigation";
import { useRoute } from "./router";
import { TokenForm } from "./TokenForm";
import { viewOf } from "./views";

export function App() {
  const route = useRoute();
  const view = viewOf(route);
  const { downSince } = useConnection();
  const tokenWanted = useTokenWanted();
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={toMain}>
        Skip to the content
      </a>
      <Navigation route={route} view={view} />
      <main id="main" tabIndex={-1} className={downSince === null ? "" : "old"}>
        <ConnectionBanner />
        {tokenWanted ? <TokenForm /> : (view?.render(route) ?? <NotFound />)}
      </main>
    </div>
  );
}

/** The hash belongs to the router, so the link moves the focus itself. */
function toMain(event: React.MouseEvent): void {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function NotFound() {
  return (
    <>
      <PageHead title="Not found" />
      <State title="There is no such view">
        <a href="#/fleet">To the fleet</a>
      </State>
    </>
  );
}
